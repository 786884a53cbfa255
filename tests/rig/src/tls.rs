//! Certificates for servers on loopback.

use anyhow::{Context, Result, bail};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// An authority of its own, and a server's certificate for 127.0.0.1 and for Function URLs of the rig's region.
#[derive(Clone)]
pub(crate) struct Certificates {
    /// The authority, PEM in base64, as EKS and webhooks have it.
    pub authority: String,
    /// The same as a file, PEM.
    pub authority_file: PathBuf,
    pub acceptor: TlsAcceptor,
}

const SCRIPT: &str = "set -e
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=rig-ca -keyout ca.key -out ca.crt \\
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=rig -keyout server.key -out server.csr
printf 'subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:*.lambda-url.us-west-2.on.aws\\nextendedKeyUsage=serverAuth\\n' > server.ext
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out server.crt -extfile server.ext
base64 -w0 ca.crt > ca.base64";

impl Certificates {
    /// Makes them in a folder.
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let made = Command::new("bash").args(["-c", SCRIPT]).current_dir(folder).output().context("bash cannot be started")?;
        if !made.status.success() {
            bail!("openssl makes no certificates: {}", String::from_utf8_lossy(&made.stderr));
        }
        let chain = CertificateDer::pem_file_iter(folder.join("server.crt"))?.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_file(folder.join("server.key"))?;
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let authority = std::fs::read_to_string(folder.join("ca.base64"))?;
        Ok(Self { authority, authority_file: folder.join("ca.crt"), acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}
