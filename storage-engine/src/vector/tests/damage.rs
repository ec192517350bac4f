//! Files of another version and damaged ones: what is said of them.

use super::*;
use crate::io::OpenMode;
use crate::io::mem::MemDisk;
use crate::vector::files::checksum;

/// Bytes with another format version, and the checksum that the program that wrote them would have given them.
fn of_version(bytes: &[u8], version: u32) -> Vec<u8> {
    let mut bytes = bytes[..bytes.len() - 8].to_vec();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let sum = checksum(0, &bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// One message for all of it once said no more than that something was wrong.
#[test]
fn what_cannot_be_read_says_what_it_is_and_what_to_do() {
    let disk: Rc<dyn Disk> = Rc::new(MemDisk::new());
    let config = Config::new(3, Metric::Cosine);
    let mut draft = create(&disk, config, TIGHT).begin().expect("the only one");
    block_on(draft.put(1, &[&[1.0, 2.0, 3.0]], &Unpaced)).expect("it is put");
    let manifest = block_on(draft.prepare(2, &Unpaced)).expect("it is prepared").manifest().to_vec();
    let message = |manifest: &[u8]| open(&disk, manifest, TIGHT).err().map(|error| error.to_string());
    let place = folder().display().to_string();
    let to_do = "start the version of the program that wrote them, or start anew with a dump that it makes";
    let version = |place: &str| {
        Some(format!("{place}: the vectors have format version 3, this program reads version 1; {to_do}"))
    };
    assert_eq!(message(&manifest), None);
    assert_eq!(message(&of_version(&manifest, 3)), version(&place));
    let mut damaged = manifest.clone();
    damaged[20] ^= 1;
    let restore = "restore the index from a dump or a replica";
    let told = format!("{place}: the manifest of these vectors is damaged (it does not match its checksum); {restore}");
    assert_eq!(message(&damaged), Some(told));
    let codes = folder().join("codes");
    let shown = codes.display();
    let file = block_on(disk.open(&codes, OpenMode::Existing)).expect("it is there");
    let header = block_on(file.read_at(0, 32)).expect("it can be read");
    let write = |at: u64, bytes: Vec<u8>| block_on(file.write_at(at, bytes)).expect("it can be written");
    write(0, of_version(&header, 3));
    assert_eq!(message(&manifest), version(&codes.display().to_string()));
    write(0, vec![1; 32]);
    let told = format!(
        "{shown}: the header is not that of vectors with 3 dimensions as the manifest has them, or it is damaged; {restore}"
    );
    assert_eq!(message(&manifest), Some(told));
    write(0, header);
    write(4096, vec![1]);
    let told = format!("{shown}: record 0 is damaged (it does not match its checksum); {restore}");
    assert_eq!(message(&manifest), Some(told));
}
