(ulimit -n 24; trireme launch -n 12 -- true)
