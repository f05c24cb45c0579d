//! Questions to an authority: each signed, with a nonce that is good once (RFC 8555, section 6).

use super::directory::{Directory, same_server};
use super::jws::{self, AccountKey};
use super::problem::Problem;
use crate::enrolment::EnrolError;
use crate::enrolment::web::Web;
use bulla_device::http::{Answer, Url};
use serde_json::Value;

/// How often one question is asked again because its nonce was not good.
const BAD_NONCES_MAX: u32 = 3;
/// Most questions for one certificate, whatever the authority does.
const QUESTIONS_MAX: u32 = 400;
/// The longest nonce, in characters.
const NONCE_LETTERS_MAX: usize = 512;
/// The media type of a question (RFC 8555, section 6.2).
const JOSE: &[u8] = b"application/jose+json";

/// An authority, while it is asked.
pub struct Session<'a> {
    pub(super) web: Web<'a>,
    at: Url,
    pub(super) directory: Directory,
    key: AccountKey,
    /// The account, once it is known.
    account: Option<Url>,
    /// The next question's.
    nonce: Option<String>,
    questions: u32,
}

impl<'a> Session<'a> {
    /// Reads the directory.
    ///
    /// # Errors
    /// The authority can't be reached, or what comes is no directory.
    pub fn open(mut web: Web<'a>, at: &Url, key: AccountKey) -> Result<Session<'a>, EnrolError> {
        let answer = web.ask("GET", at, &[("accept", b"application/json")], None)?;
        if answer.status != 200 {
            return Err(not_good(at, &answer));
        }
        let directory = Directory::read(&answer.body, at)?;
        Ok(Session { web, at: at.clone(), directory, key, account: None, nonce: None, questions: 0 })
    }

    /// What names the account's key in proofs.
    pub fn thumbprint(&self) -> String {
        self.key.thumbprint()
    }

    /// The account's key.
    pub fn key(&self) -> &AccountKey {
        &self.key
    }

    /// Finds or makes the account, and asks in its name from now on.
    ///
    /// # Errors
    /// As [`Self::post`].
    pub fn sign_in(&mut self, payload: &Value) -> Result<(), EnrolError> {
        let answer = self.post(&self.directory.new_account.clone(), Some(payload))?;
        self.account = Some(self.location(&answer)?);
        Ok(())
    }

    /// A place that the authority names, at its own server.
    ///
    /// # Errors
    /// [`EnrolError::Protocol`]: it is at another one.
    pub fn place(&self, text: &str, what: &str) -> Result<Url, EnrolError> {
        same_server(text, &self.at, what)
    }

    /// Where that is what an answer is about.
    ///
    /// # Errors
    /// As [`Self::place`].
    pub fn location(&self, answer: &Answer) -> Result<Url, EnrolError> {
        self.place(answer.field("location").unwrap_or_default(), "the location")
    }

    /// Asks. Without a payload it only reads.
    ///
    /// # Errors
    /// [`EnrolError::Refused`] with what the authority says; it can't be reached, or breaks the protocol.
    pub fn post(&mut self, url: &Url, payload: Option<&Value>) -> Result<Answer, EnrolError> {
        self.post_for(url, payload, "application/json")
    }

    /// The same, for an answer of another media type.
    ///
    /// # Errors
    /// As [`Self::post`].
    pub fn post_for(&mut self, url: &Url, payload: Option<&Value>, accept: &str) -> Result<Answer, EnrolError> {
        let fields = [("content-type", JOSE), ("accept", accept.as_bytes())];
        let mut bad_nonces = 0;
        loop {
            let nonce = match self.nonce.take() {
                Some(nonce) => nonce,
                None => self.new_nonce()?,
            };
            let account = self.account.as_ref().map(Url::to_string);
            let body = self.key.signed(&url.to_string(), &nonce, account.as_deref(), payload)?;
            self.count()?;
            let answer = self.web.ask("POST", url, &fields, Some(&body))?;
            self.nonce = nonce_of(&answer);
            if (200..300).contains(&answer.status) {
                return Ok(answer);
            }
            let problem = Problem::of(&answer);
            if problem.kind() != "badNonce" || bad_nonces == BAD_NONCES_MAX {
                return Err(not_good(url, &answer));
            }
            bad_nonces += 1;
        }
    }

    fn new_nonce(&mut self) -> Result<String, EnrolError> {
        self.count()?;
        let at = self.directory.new_nonce.clone();
        let answer = self.web.ask("GET", &at, &[], None)?;
        if !(200..300).contains(&answer.status) {
            return Err(not_good(&at, &answer));
        }
        nonce_of(&answer).ok_or_else(|| EnrolError::Protocol { why: "it gives no nonce".to_owned() })
    }

    fn count(&mut self) -> Result<(), EnrolError> {
        self.questions += 1;
        match self.questions {
            0..=QUESTIONS_MAX => Ok(()),
            _ => Err(EnrolError::Protocol { why: format!("it took more than {QUESTIONS_MAX} questions") }),
        }
    }
}

/// The nonce that comes with an answer; none where it is no good one.
fn nonce_of(answer: &Answer) -> Option<String> {
    let nonce = answer.field("replay-nonce")?;
    (jws::is_base64url(nonce) && nonce.len() <= NONCE_LETTERS_MAX).then(|| nonce.to_owned())
}

/// What an answer with a status that is not good means. No redirect is followed.
fn not_good(url: &Url, answer: &Answer) -> EnrolError {
    match answer.status {
        300..=399 => EnrolError::Transfer {
            url: url.to_string(),
            why: format!("it answers with a redirect ({}), which is not followed", answer.status),
        },
        _ => Problem::of(answer).refused(),
    }
}
