trireme data --help
