trireme chaos --help
