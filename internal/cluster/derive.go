package cluster

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"shoal/internal/peer"
)

// From the shoal's key everything else is derived (HKDF, RFC 5869), each with a purpose of its own, so that no part tells
// anything about another: the gossip's AES-256 key, and the signing key of a certificate authority. Every agent thus is
// the authority: at its start it issues itself a certificate for its own ID. Who can do so has the key; that is what
// being a member of the shoal means. Within the shoal the certificate binds a connection to an ID, no more.
const (
	purposeGossip  = "shoal gossip key, version 1"
	purposeCA      = "shoal certificate authority, version 1"
	purposeControl = "shoal control datagrams, version 1"
)

// certScheme is the scheme of the URI that carries the peer's ID in its certificate: shoal:ID.
const certScheme = "shoal"

func derive(k Key, purpose string) []byte {
	b, err := hkdf.Key(sha256.New, k[:], nil, purpose, 32)
	if err != nil {
		panic(fmt.Sprintf("cluster: HKDF of 32 bytes: %v", err)) // only for lengths that no constant here has
	}
	return b
}

func (k Key) gossip() []byte { return derive(k, purposeGossip) }

// The validity of all certificates is fixed: possession of the key is the only credential, and its rotation what ends
// trust. Clocks that disagree must not keep peers apart.
var (
	certFrom = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	certTo   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) // RFC 5280, 4.1.2.5: no end
)

// authority is the certificate authority that a key stands for. Two agents with one key make the same one.
func (k Key) authority() (*x509.Certificate, ed25519.PrivateKey, error) {
	priv := ed25519.NewKeyFromSeed(derive(k, purposeCA))
	sum := sha256.Sum256(priv.Public().(ed25519.PublicKey))
	tmpl := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "shoal"},
		SubjectKeyId:          sum[:20],
		NotBefore:             certFrom,
		NotAfter:              certTo,
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, priv.Public(), priv)
	if err != nil {
		return nil, nil, fmt.Errorf("cluster: certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("cluster: certificate authority: %w", err)
	}
	return cert, priv, nil
}

// issue makes a certificate for a peer, with a fresh key of its own.
func issue(id peer.ID, ca *x509.Certificate, signer crypto.Signer) (tls.Certificate, error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cluster: certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cluster: certificate: %w", err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: string(id)},
		NotBefore:    certFrom,
		NotAfter:     certTo,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:         []*url.URL{{Scheme: certScheme, Opaque: string(id)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca, pub, signer)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cluster: certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cluster: certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: priv, Leaf: leaf}, nil
}

// tlsConfigs gives the two sides of mutual TLS for the peer port, and the authorities that they trust. The first key signs the own certificate; peers may
// show one of any of the keys, so that keys can be rotated one agent at a time.
func tlsConfigs(id peer.ID, keys []Key) (server, client *tls.Config, roots *x509.CertPool, err error) {
	roots = x509.NewCertPool()
	var own tls.Certificate
	for i, k := range keys {
		ca, signer, err := k.authority()
		if err != nil {
			return nil, nil, nil, err
		}
		roots.AddCert(ca)
		if i == 0 {
			if own, err = issue(id, ca, signer); err != nil {
				return nil, nil, nil, err
			}
		}
	}
	verify := func(cs tls.ConnectionState) error {
		_, err := certID(cs.PeerCertificates, roots)
		return err
	}
	base := &tls.Config{
		Certificates: []tls.Certificate{own},
		MinVersion:   tls.VersionTLS13,
		// The standard checks look for a host name, which peers do not have: verify checks the chain and the ID instead, on
		// both sides.
		InsecureSkipVerify: true,
		ClientAuth:         tls.RequireAnyClientCert,
		VerifyConnection:   verify,
		// Connections are kept, so that resumption saves nothing; tickets would be one more write each.
		SessionTicketsDisabled: true,
		// Records of a full 16 kB from the first byte on: the other side waits for whole frames anyway.
		DynamicRecordSizingDisabled: true,
	}
	return base, base.Clone(), roots, nil
}

// certID checks a certificate chain against the shoal's authorities and gives the peer ID in it.
func certID(chain []*x509.Certificate, roots *x509.CertPool) (peer.ID, error) {
	if len(chain) == 0 {
		return "", errors.New("cluster: the peer shows no certificate")
	}
	leaf := chain[0]
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: leaf.NotBefore,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return "", fmt.Errorf("cluster: the peer's certificate is not of this shoal's key: %w", err)
	}
	for _, u := range leaf.URIs {
		if u.Scheme != certScheme {
			continue
		}
		id := peer.ID(u.Opaque)
		if err := id.Validate(); err != nil {
			return "", fmt.Errorf("cluster: the peer's certificate: %w", err)
		}
		return id, nil
	}
	return "", errors.New("cluster: the peer's certificate names no peer ID")
}
