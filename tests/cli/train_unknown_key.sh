trireme train $EXAMPLES/fashion_mnist.yaml optim.larning_rate=1
