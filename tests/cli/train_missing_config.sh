trireme train nowhere.yaml
