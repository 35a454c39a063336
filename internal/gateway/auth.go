package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// auth knows the clients: which key belongs to which tenant, and what keeps the tenants apart.
type auth struct {
	keys    []apiKey // empty: everyone
	several bool     // more than one tenant is configured
	isolate bool
	secret  []byte
}

type apiKey struct {
	hash   [sha256.Size]byte
	tenant string
}

func newAuth(c *Config) (*auth, error) {
	a := &auth{isolate: c.Isolate, secret: []byte(c.Secret)}
	for i := range c.Keys {
		key, err := c.Keys[i].read()
		if err != nil {
			return nil, err
		}
		a.keys = append(a.keys, apiKey{sha256.Sum256([]byte(key)), c.Keys[i].Tenant})
		a.several = a.several || c.Keys[i].Tenant != c.Keys[0].Tenant
	}
	return a, nil
}

// tenant finds whose key an Authorization header carries. Every key is compared, in constant time and by its hash, so
// that the time taken tells nothing about any of them.
func (a *auth) tenant(authorization string) (tenant string, ok bool) {
	if len(a.keys) == 0 {
		return "", true
	}
	const scheme = "Bearer "
	if len(authorization) <= len(scheme) || !strings.EqualFold(authorization[:len(scheme)], scheme) {
		return "", false
	}
	hash := sha256.Sum256([]byte(strings.TrimSpace(authorization[len(scheme):])))
	for i := range a.keys {
		if subtle.ConstantTimeCompare(hash[:], a.keys[i].hash[:]) == 1 {
			tenant, ok = a.keys[i].tenant, true
		}
	}
	return tenant, ok
}

// salt derives what separates a tenant's blocks, at the engine and in the keys that peers share. The client's own salt
// goes in, so that it still separates within the tenant. Nobody without the secret can make the salt of another tenant.
func (a *auth) salt(tenant, own string) string {
	mac := hmac.New(sha256.New, a.secret)
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(tenant)))
	mac.Write(n[:])
	mac.Write([]byte(tenant))
	mac.Write([]byte(own))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
