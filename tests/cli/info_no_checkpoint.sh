mkdir -p run/checkpoints empty
trireme info run
for path in nowhere empty "$EXAMPLES/fashion_mnist.yaml"; do
    trireme info $path
    echo "exit $?"
done
trireme info run --env
trireme info run empty
