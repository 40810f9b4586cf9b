//! One command's dealings with the engine and with the person who gave it.

use control::{Answer, EngineError, ErrorKind};
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::output::{Output, Row};
use crate::{Console, output};

/// The engine, the form of the output, and the console.
pub(crate) struct Session<'a, 'b> {
    pub(crate) client: Client,
    pub(crate) output: Output,
    pub(crate) console: &'a mut Console<'b>,
}

/// No body.
const NOTHING: Option<&()> = None;

impl Session<'_, '_> {
    /// `GET`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.client.call(Method::GET, path, NOTHING)
    }

    /// `POST`.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Answer<T> {
        self.client.call(Method::POST, path, Some(body))
    }

    /// `PUT`.
    pub(crate) fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Answer<T> {
        self.client.call(Method::PUT, path, Some(body))
    }

    /// `PATCH`.
    pub(crate) fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Answer<T> {
        self.client.call(Method::PATCH, path, Some(body))
    }

    /// `DELETE`.
    pub(crate) fn delete<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.client.call(Method::DELETE, path, NOTHING)
    }

    /// Writes many objects.
    pub(crate) fn list<T: Row>(&mut self, objects: &[T]) -> Answer<()> {
        self.output.list(objects, self.console)
    }

    /// Writes one object in full.
    pub(crate) fn show<T: Row>(&mut self, object: &T) -> Answer<()> {
        self.output.show(object, self.console)
    }

    /// Writes what was done.
    pub(crate) fn done<T: Row>(&mut self, object: &T, sentence: &str) -> Answer<()> {
        self.output.done(object, sentence, self.console)
    }

    /// Writes a JSON value, in any form of output.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Answer<()> {
        output::json(value, self.console)
    }

    /// Writes a line to the results.
    pub(crate) fn line(&mut self, text: &str) -> Answer<()> {
        output::line(self.console, text)
    }

    /// Says something that is no result; JSON has it in the object.
    pub(crate) fn remark(&mut self, text: &str) {
        if self.output == Output::Table {
            // Nobody reads it any more: nothing to do about that.
            let _ = writeln!(self.console.error, "{text}");
        }
    }

    /// Says the warnings of an object.
    pub(crate) fn warn(&mut self, warnings: &[String]) {
        for warning in warnings {
            self.remark(&format!("warning: {warning}"));
        }
    }

    /// Whether somebody is here to be asked.
    pub(crate) fn asks(&self) -> bool {
        self.console.terminal
    }

    /// Shows what a command is about to destroy and asks; `yes` is the answer given beforehand.
    ///
    /// # Errors
    /// `Unsafe` when the answer is no, or there is nobody to ask.
    pub(crate) fn confirm(&mut self, question: &Question, yes: bool) -> Answer<()> {
        self.remark(&format!("{}:", question.what));
        for line in &question.touched {
            self.remark(&format!("  {line}"));
        }
        if yes {
            return Ok(());
        }
        let refused =
            |message: &str| EngineError::new(ErrorKind::Unsafe, question.object.clone(), message);
        if !self.console.terminal {
            // A table has shown it above.
            let message = match self.output {
                Output::Table => "nobody is here to be asked".to_owned(),
                Output::Json => format!(
                    "{} ({}), and nobody is here to be asked",
                    question.what,
                    question.touched.join("; ")
                ),
            };
            return Err(refused(&message).next("give --yes to answer beforehand"));
        }
        let mut answer = String::new();
        let asked = write!(self.console.error, "Go on? [y/N] ")
            .and_then(|()| self.console.error.flush())
            .and_then(|()| self.console.input.read_line(&mut answer));
        match (asked, answer.trim()) {
            (Ok(_), "y" | "Y" | "yes") => Ok(()),
            _ => Err(refused("not confirmed; nothing was done")),
        }
    }
}

/// What a destructive command is about to do.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The object of the command: `array a`.
    pub(crate) object: String,
    /// What will happen, as the beginning of a sentence: `this destroys array a and all it holds`.
    pub(crate) what: String,
    /// What it touches, a line each.
    pub(crate) touched: Vec<String>,
}
