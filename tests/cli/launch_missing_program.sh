trireme launch -n 1 -- no-such-program
