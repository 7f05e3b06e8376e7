trireme trian
