trireme train $EXAMPLES/fashion_mnist.yaml --rsume x
