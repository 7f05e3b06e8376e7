trireme sim --help
trireme sim recovery --help
