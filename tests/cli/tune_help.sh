trireme tune --help
trireme top --help
