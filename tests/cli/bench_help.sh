trireme bench --help
