trireme sim --help
