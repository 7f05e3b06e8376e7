trireme predict --help
