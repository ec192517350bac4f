//! What the services say, in XML, and the one thing that is said to them in it.

use std::time::Duration;

use roxmltree::Document;
use rusty_s3::Credentials;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Letters of a message that are shown.
const MESSAGE_LETTERS_MAX: usize = 300;

/// An error as a service tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceError {
    /// Its code, such as `AccessDenied`; empty where there is none.
    pub code: String,
    /// What it says for people.
    pub message: String,
}

/// The text of the first element of this name, whatever its name space: services differ in these.
fn text(document: &Document<'_>, name: &str) -> Option<String> {
    let found = document.descendants().find(|node| node.tag_name().name() == name)?;
    Some(found.text().unwrap_or_default().trim().to_owned())
}

fn with<T>(body: &[u8], read: impl FnOnce(&Document<'_>) -> Option<T>) -> Option<T> {
    let body = std::str::from_utf8(body).ok()?;
    Document::parse(body.trim_start()).ok().and_then(|document| read(&document))
}

/// The error that an answer holds, if it is one.
pub fn error(body: &[u8]) -> Option<ServiceError> {
    with(body, |document| {
        document.descendants().find(|node| node.tag_name().name() == "Error")?;
        let message = text(document, "Message").unwrap_or_default();
        let message = message.chars().take(MESSAGE_LETTERS_MAX).collect();
        Some(ServiceError { code: text(document, "Code").unwrap_or_default(), message })
    })
}

/// The name of the upload that has begun.
pub fn upload_id(body: &[u8]) -> Option<String> {
    with(body, |document| text(document, "UploadId")).filter(|id| !id.is_empty())
}

/// Whether an answer says that the parts have become an object. Its status does not: it comes before the work.
pub fn is_completed(body: &[u8]) -> bool {
    let root = with(body, |document| Some(document.root_element().tag_name().name().to_owned()));
    root.is_some_and(|root| root == "CompleteMultipartUploadResult")
}

/// The keys that a token has given, and the time at which they end, since 1970.
pub fn credentials(body: &[u8]) -> Option<(Credentials, Option<Duration>)> {
    with(body, |document| {
        let value = |name: &str| text(document, name).filter(|text| !text.is_empty());
        let keys =
            Credentials::new_with_token(value("AccessKeyId")?, value("SecretAccessKey")?, value("SessionToken")?);
        let end = value("Expiration").and_then(|date| OffsetDateTime::parse(&date, &Rfc3339).ok());
        let end = end.and_then(|date| u64::try_from(date.unix_timestamp()).ok()).map(Duration::from_secs);
        Some((keys, end))
    })
}

/// The list of parts that completes an upload: the tag of each, in order.
pub fn completion(tags: &[String]) -> Vec<u8> {
    let mut body = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (index, tag) in tags.iter().enumerate() {
        let tag = tag.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        body.push_str(&format!("<Part><PartNumber>{}</PartNumber><ETag>{tag}</ETag></Part>", index + 1));
    }
    body.push_str("</CompleteMultipartUpload>");
    body.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whatever_their_name_space() {
        let begun =
            |attributes: &str| format!("<?xml version=\"1.0\"?>\n<R{attributes}><UploadId> a/b= </UploadId></R>");
        for attributes in ["", " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"", " xmlns=\"other\""] {
            assert_eq!(upload_id(begun(attributes).as_bytes()).as_deref(), Some("a/b="));
        }
        for no_answer in ["", "no XML", "<R><UploadId/></R>", "<R/>", "\u{0}"] {
            assert_eq!(upload_id(no_answer.as_bytes()), None, "{no_answer}");
        }
        // White space keeps the connection alive while parts are put together, and then it may have failed.
        let failed = b"  \n<Error><Code>InternalError</Code><Message>try again</Message></Error>";
        assert_eq!(error(failed), Some(ServiceError { code: "InternalError".into(), message: "try again".into() }));
        assert!(!is_completed(failed) && is_completed(b" <CompleteMultipartUploadResult/>"));
        assert!(!is_completed(b"") && error(b"<Ok/>").is_none());
    }

    #[test]
    fn keys_have_an_end() {
        let keys = "<R xmlns=\"x\"><C><SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey>\
                    <Expiration>1970-01-02T00:00:00Z</Expiration><AccessKeyId>k</AccessKeyId></C></R>";
        let (credentials, end) = credentials(keys.as_bytes()).unwrap();
        assert_eq!((credentials.key(), credentials.secret(), credentials.token()), ("k", "s", Some("t")));
        assert_eq!(end, Some(Duration::from_secs(86_400)));
        assert!(super::credentials(b"<R><AccessKeyId>k</AccessKeyId></R>").is_none());
    }

    #[test]
    fn tags_are_written_so_that_they_are_read_as_they_came() {
        let tags = ["\"abc\"".to_owned(), "<&>".to_owned()];
        let body = String::from_utf8(completion(&tags)).unwrap();
        let document = Document::parse(&body).unwrap();
        let values = |name: &str| -> Vec<&str> {
            document
                .descendants()
                .filter(|node| node.tag_name().name() == name)
                .filter_map(|node| node.text())
                .collect()
        };
        assert_eq!(values("ETag"), ["\"abc\"", "<&>"]);
        assert_eq!(values("PartNumber"), ["1", "2"]);
    }
}
