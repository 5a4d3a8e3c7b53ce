module call_overhead

go 1.21

require accel v0.0.0

replace accel => ../../../bindings/go
