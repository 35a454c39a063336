// Package gateway is the OpenAI-compatible front of an agent: it reads a request once, has the node decide which peer
// serves it, and brings the answer back, from the own engine or over one hop.
package gateway
