//! The way of an API server to the relay's own address: a proxy (HTTPS_PROXY) that connects every name to one server on loopback.

use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Connects whoever asks to `target`.
pub(crate) async fn serve(listener: TcpListener, target: SocketAddr) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            // A client that breaks a connection off knows that it did.
            let _ = connect(BufReader::new(stream), target).await;
        });
    }
}

async fn connect(mut client: BufReader<TcpStream>, target: SocketAddr) -> std::io::Result<()> {
    let mut line = String::new();
    client.read_line(&mut line).await?;
    let is_connect = line.starts_with("CONNECT ");
    while !line.trim().is_empty() {
        line.clear();
        client.read_line(&mut line).await?;
    }
    if !is_connect {
        return client.write_all(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n").await;
    }
    let mut server = TcpStream::connect(target).await?;
    server.set_nodelay(true)?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
