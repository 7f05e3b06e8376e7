trireme plan --help
