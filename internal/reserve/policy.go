package reserve

import "fmt"

// Policy is a rule by which paths are chosen. The zero value is Least. Each has a file of its own. A further one that chooses at
// once takes a name here, a case in Table.choose, and one in Table.again. One that has transfers wait, as Shoal does, decides
// elsewhere too: in Reserve and Start (Table.shoal, shoalStart), where transfers come and may go; in Admit, which calls those that
// waited; by what Heard and Merge bring, where Table.put and lift keep who waits; and in Renew and Release, by what it learns.
type Policy uint8

const (
	Least Policy = iota
	Ark
	Split
	ECMP
	Shoal
)

var policyNames = [...]string{Least: "least", Ark: "ark", Split: "split", ECMP: "ecmp", Shoal: "shoal"}

func (p Policy) known() bool { return int(p) < len(policyNames) }

func (p Policy) String() string {
	if p.known() {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// MarshalText writes the name, as configuration files have it.
func (p Policy) MarshalText() ([]byte, error) {
	if !p.known() {
		return nil, fmt.Errorf("reserve: policy %d does not exist; use one of %v", uint8(p), policyNames)
	}
	return []byte(policyNames[p]), nil
}

// UnmarshalText reads a policy's name.
func (p *Policy) UnmarshalText(text []byte) error {
	for i, name := range policyNames {
		if string(text) == name {
			*p = Policy(i)
			return nil
		}
	}
	return fmt.Errorf("reserve: policy %.40q does not exist; use one of %v", text, policyNames)
}

// share is the part of a transfer that flow number i of n takes: equal parts, the first bytes%n of them a byte more.
func share(bytes int64, i, n int) int64 {
	if n == 1 {
		return bytes
	}
	part := bytes / int64(n)
	if int64(i) < bytes%int64(n) {
		part++
	}
	return part
}
