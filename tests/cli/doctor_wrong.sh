trireme doctor -n 0
trireme doctor here
trireme doctor --hosts nowhere
trireme doctor --wait 0
trireme doctor --hostz x
