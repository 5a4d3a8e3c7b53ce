module accel

go 1.20
