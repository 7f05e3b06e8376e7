trireme train $EXAMPLES/fashion_mnist.yaml --dry-run optim.lr=0.3 >out
code=$?
grep -v '^#' out # the data may not be installed
exit $code
