package route

// Reason is why a decision fell as it did, in one word for headers and counters.
type Reason uint8
