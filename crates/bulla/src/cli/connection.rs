//! How a command of the client reaches a broker: options that `put`, `get` and `error` share.

use super::CliError;
use bulla_amqp::SaslClient;
use bulla_client::Endpoint;
use clap::Args;
use std::path::PathBuf;

/// Where to connect and as whom.
#[derive(Args, Clone, Debug)]
pub struct ConnectionArgs {
    /// Where AMQP is spoken
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5672")]
    pub amqp: String,
    /// Speak TLS and believe the authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Show this certificate (PEM); the key is in the same file unless --key names another
    #[arg(long, value_name = "FILE", requires = "ca")]
    pub cert: Option<PathBuf>,
    /// The private key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Sign in as this user, by SCRAM-SHA-256
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub user: Option<String>,
    /// The user's password, the first line of this file
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// Sign in with the bearer token in this file, by OAUTHBEARER: over TLS, or on this machine
    #[arg(long, value_name = "FILE", conflicts_with = "user")]
    pub token_file: Option<PathBuf>,
}

impl ConnectionArgs {
    /// The endpoint that the options describe.
    ///
    /// # Errors
    /// The file of the password or of the token can't be read.
    pub fn endpoint(&self) -> Result<Endpoint, CliError> {
        let first_line = |file: &PathBuf| -> Result<String, CliError> {
            let text = std::fs::read_to_string(file).map_err(|error| CliError::file(file, error))?;
            Ok(text.lines().next().unwrap_or_default().to_owned())
        };
        let sasl = match (&self.user, &self.password_file, &self.token_file) {
            (Some(user), Some(file), _) => SaslClient::Scram { user: user.clone(), password: first_line(file)? },
            (_, _, Some(file)) => SaslClient::Bearer { token: first_line(file)? },
            _ if self.cert.is_some() => SaslClient::External,
            _ => SaslClient::Anonymous,
        };
        let certificate =
            self.cert.as_ref().map(|cert| (cert.clone(), self.key.clone().unwrap_or_else(|| cert.clone())));
        Ok(Endpoint { address: self.amqp.clone(), authorities: self.ca.clone(), certificate, sasl })
    }
}
