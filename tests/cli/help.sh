trireme --help
