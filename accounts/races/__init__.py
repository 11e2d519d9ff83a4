"""What is raced and measured with accounts: ready-made races for the explorer, loads for the simulator."""
