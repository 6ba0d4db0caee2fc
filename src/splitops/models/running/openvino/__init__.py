"""OpenVINO models run: splits and data movers here, other layers by OpenVINO if it is installed."""
