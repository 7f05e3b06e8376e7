trireme train $EXAMPLES/fashion_mnist.yaml train.batch=lots
