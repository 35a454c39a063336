package socket

const linux = true
