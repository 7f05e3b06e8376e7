trireme launch --help
