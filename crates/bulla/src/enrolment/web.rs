//! Questions to an authority over HTTP, within the time that all of them have.

use super::EnrolError;
use super::safe_file::check_safe;
use bulla_device::http::{self, Answer, Client, NoAnswer, Scheme, Takes, Url};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of an answer: a certificate and those above it.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Longest wait between two looks at a reason to give up.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Most characters that are shown of what an authority says.
const SAID_CHARS_MAX: usize = 200;

/// One authority, while it is asked.
pub struct Web<'a> {
    client: Client,
    url: Url,
    within: Duration,
    ends: Instant,
    is_stopping: &'a dyn Fn() -> bool,
}

impl<'a> Web<'a> {
    /// To the server of a URL. Over TLS its certificate is to be issued below one of `believed`, a PEM file.
    ///
    /// # Errors
    /// That file can't be read, or others may write it.
    pub fn new(
        url: &Url,
        believed: &Path,
        within: Duration,
        is_stopping: &'a dyn Fn() -> bool,
    ) -> Result<Web<'a>, EnrolError> {
        let connector = match url.address.scheme {
            Scheme::Http => None,
            Scheme::Https => {
                let file = believed.canonicalize().map_err(EnrolError::file(believed))?;
                check_safe(&file)?;
                let unusable = |why| EnrolError::Transfer { url: url.to_string(), why };
                Some(http::believing(&file).map_err(unusable)?.build())
            }
        };
        let takes = Takes { body_bytes_max: ANSWER_BYTES_MAX, to_the_end: true };
        let client = Client::new(url.address.clone(), connector, takes);
        Ok(Web { client, url: url.clone(), within, ends: Instant::now() + within, is_stopping })
    }

    /// Whether the server is there and believed: it is connected to, and asked nothing.
    ///
    /// # Errors
    /// [`EnrolError::Late`], [`EnrolError::Transfer`].
    pub fn reach(&self) -> Result<(), EnrolError> {
        self.client.reach(self.ends, self.is_stopping).map_err(|error| self.failed(&self.url, error))
    }

    /// One request and its answer, whatever its status.
    ///
    /// # Errors
    /// [`EnrolError::Late`], [`EnrolError::Stopping`], [`EnrolError::Transfer`].
    pub fn ask(
        &mut self,
        method: &str,
        url: &Url,
        fields: &[(&str, &[u8])],
        body: Option<&[u8]>,
    ) -> Result<Answer, EnrolError> {
        let request = http::request(method, &self.url.address, &url.path, fields, body);
        self.client.ask(&request, self.ends, self.is_stopping).map_err(|error| self.failed(url, error))
    }

    fn failed(&self, url: &Url, error: NoAnswer) -> EnrolError {
        match error {
            NoAnswer::Late(_) => self.late(),
            NoAnswer::GivenUp => EnrolError::Stopping,
            error => EnrolError::Transfer { url: url.to_string(), why: error.to_string() },
        }
    }

    /// Has the next question go over a connection of its own.
    pub fn hang_up(&mut self) {
        self.client.hang_up();
    }

    /// Waits so long before the authority is asked again. False where there is not so much time left.
    ///
    /// # Errors
    /// [`EnrolError::Stopping`].
    pub fn wait(&self, time: Duration) -> Result<bool, EnrolError> {
        let until = Instant::now() + time;
        // Who can't be asked again is not waited for.
        if until >= self.ends {
            return Ok(false);
        }
        loop {
            if (self.is_stopping)() {
                return Err(EnrolError::Stopping);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            // In short steps: nothing rings when the queue manager is told to stop.
            thread::sleep(LOOK_EVERY.min(left));
        }
    }

    /// Its time is over.
    pub fn late(&self) -> EnrolError {
        EnrolError::Late { seconds: self.within.as_secs() }
    }
}

/// What an authority said, without what could disturb a log.
pub fn plain(text: &str) -> String {
    let line = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    line.take(SAID_CHARS_MAX).collect::<String>().trim().to_owned()
}
