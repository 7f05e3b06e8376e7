trireme train $EXAMPLES/fashion_mnist.yaml -n 9
