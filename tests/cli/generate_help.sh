trireme generate --help
