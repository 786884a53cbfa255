//! An account and a cluster in which nothing is installed, for whoever installs: what `sam`, `aws`, `whittle` and `kubectl` need is there,
//! and what the deployment brings is joined to the rest once it is there.

use crate::account::{AccessEntries, Account};
use crate::emulator::Emulator;
use crate::events::Bus;
use crate::tls::Certificates;
use crate::{proxy, relay};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as Bound};
use std::time::Duration;
use tokio::net::TcpListener;
use whittle_fake_aws::Lone;
use whittle_fake_aws::server::Shared;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A role that nobody asks for: where the simulated AWS knows one, it takes no other for granted.
const SOME_ROLE: &str = "AWSServiceRoleForAmazonEKS";

/// The API server's way to the relay's own address, which is open before it starts.
pub(crate) struct Way {
    listener: Bound,
    environment: Vec<(&'static str, OsString)>,
}

impl Way {
    pub(crate) fn open(certificates: &Certificates) -> Result<Self> {
        let listener = Bound::bind((Ipv4Addr::LOCALHOST, 0)).context("no port of 127.0.0.1 can be taken")?;
        listener.set_nonblocking(true)?;
        let proxy = format!("http://{}", listener.local_addr()?);
        let authority = certificates.authority_file.clone().into_os_string();
        let environment = vec![("HTTPS_PROXY", proxy.into()), ("NO_PROXY", "127.0.0.1,localhost".into()), ("SSL_CERT_FILE", authority)];
        Ok(Self { listener, environment })
    }

    /// What the API server has to know of it.
    pub(crate) fn environment(&self) -> Vec<(&'static str, &std::ffi::OsStr)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_os_str())).collect()
    }

    /// Serves it, and the relay's address at its other end.
    pub(crate) async fn serve(self, emulator: &Emulator, certificates: &Certificates) -> Result<()> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        tokio::spawn(proxy::serve(TcpListener::from_std(self.listener)?, listener.local_addr()?));
        let (acceptor, emulator) = (certificates.acceptor.clone(), emulator.clone());
        tokio::spawn(async move { relay::serve(listener, acceptor, &emulator, None).await });
        Ok(())
    }
}

/// A region without the tags and roles that an installation makes.
pub(crate) fn clear(lone: &mut Lone) {
    let network = &mut lone.region.network;
    network.subnets.iter_mut().for_each(|subnet| subnet.tags.clear());
    network.groups.iter_mut().for_each(|group| group.tags.clear());
    network.roles.insert(SOME_ROLE.to_owned());
}

/// Serves the account; its endpoint.
pub(crate) async fn serve(emulator: &Emulator, simulated: String, region: &Shared, entries: AccessEntries) -> Result<String> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    tokio::spawn(Account::new(emulator.endpoint().to_owned(), simulated, region.clone(), entries).serve(listener));
    let (emulator, region) = (emulator.clone(), region.clone());
    tokio::spawn(async move {
        let mut interval = tokio::time::interval(LOOK_EVERY);
        loop {
            interval.tick().await;
            if let Ok(bus) = Bus::read(&emulator).await {
                return bus.deliver(region).await;
            }
        }
    });
    Ok(endpoint)
}
