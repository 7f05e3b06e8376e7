trireme train $EXAMPLES/fashion_mnist.yaml --dry-run optim.lr=0.3
