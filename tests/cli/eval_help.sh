trireme eval --help
