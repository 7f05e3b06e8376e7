trireme ckpt --help
