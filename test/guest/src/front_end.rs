//! Plays the VMM's side of vhost-user in tests: messages, memory, in-flight memory, reconnect.
//!
//! Written from the vhost-user specification, without the crate that the back-end uses, so that
//! the two check each other. What does not live here: rings (`driver.rs`), requests.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::{Driver, Memory};

/// Numbers of the messages, "Front-end message types" of the specification.
#[allow(missing_docs, reason = "the specification's own names")]
pub mod message {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const RESET_DEVICE: u32 = 34;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
    pub const GET_STATUS: u32 = 40;
}

/// Bits of the protocol's own feature word.
#[allow(missing_docs, reason = "the specification's own names")]
pub mod protocol {
    pub const MQ: u64 = 1 << 0;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub const RESET_DEVICE: u64 = 1 << 13;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;
}

/// `VHOST_USER_F_PROTOCOL_FEATURES`, in the virtio feature word.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;

const VERSION: u32 = 1;
const REPLY: u32 = 4;
const NEED_REPLY: u32 = 8;
/// No descriptor comes with a kick, call or error.
const NO_DESCRIPTOR: u64 = 1 << 8;
/// Our own addresses are the guest's and so much more, so that nobody mixes them up unpunished.
const USER_OFFSET: u64 = 1 << 45;

/// A message that came back.
#[derive(Debug)]
pub struct Reply {
    /// Its number.
    pub request: u32,
    /// What it says.
    pub payload: Vec<u8>,
    /// What came with it.
    pub file: Option<File>,
}

impl Reply {
    /// The payload as one number.
    ///
    /// # Panics
    /// When it is not one.
    #[must_use]
    pub fn number(&self) -> u64 {
        u64::from_ne_bytes(self.payload[..].try_into().expect("one number"))
    }
}

/// What a back-end records in; kept here while back-ends come and go.
#[derive(Debug)]
pub struct InflightMemory {
    /// Where it is.
    pub file: File,
    /// The message that describes it.
    pub description: Vec<u8>,
}

/// The event descriptors of one ring.
#[derive(Debug)]
pub struct Bells {
    /// Wakes the back-end.
    pub kick: EventFd,
    /// Wakes us.
    pub call: EventFd,
    /// Says that the ring is broken.
    pub error: EventFd,
}

impl Bells {
    /// New ones.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new() -> io::Result<Bells> {
        Ok(Bells {
            kick: EventFd::new(EFD_NONBLOCK)?,
            call: EventFd::new(EFD_NONBLOCK)?,
            error: EventFd::new(EFD_NONBLOCK)?,
        })
    }
}

/// One connection to a back-end.
#[derive(Debug)]
pub struct FrontEnd {
    stream: UnixStream,
    acknowledged: bool,
}

impl FrontEnd {
    /// Connects. Says nothing yet.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn connect(path: &Path) -> io::Result<FrontEnd> {
        Ok(FrontEnd {
            stream: UnixStream::connect(path)?,
            acknowledged: false,
        })
    }

    /// Gives up on a back-end that leaves a message unanswered, or unread, for so long; without
    /// this it is waited for.
    ///
    /// # Errors
    /// When it is no time at all.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))?;
        self.stream.set_write_timeout(Some(patience))
    }

    /// The connection, for whoever waits for its end.
    #[must_use]
    pub fn connection(&self) -> &impl AsRawFd {
        &self.stream
    }

    /// The process that listens, as the kernel knows it (SO_PEERCRED); none when it is not to be
    /// seen from here.
    #[must_use]
    pub fn peer_process(&self) -> Option<u32> {
        let mut peer = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
        // SAFETY: the kernel writes at most `length` bytes to `peer`, whose fields may hold any
        // number.
        let status = unsafe {
            libc::getsockopt(
                self.stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut length,
            )
        };
        let process = u32::try_from(peer.pid).ok().filter(|_| status == 0)?;
        (process > 0).then_some(process)
    }

    /// Sends anything at all.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn raw(&self, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
        let sent = uninterrupted(|| {
            let sent = self.stream.send_with_fds(&[bytes], descriptors);
            sent.map_err(|error| io::Error::from_raw_os_error(error.errno()))
        })?;
        (&self.stream).write_all(&bytes[sent..])
    }

    /// Sends a message and asks for no acknowledgement.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn send(&self, request: u32, payload: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
        self.raw(&message(request, VERSION, payload), descriptors)
    }

    /// Waits for a message of the back-end.
    ///
    /// # Errors
    /// When the back-end is gone, or what came is not a reply.
    pub fn reply(&self) -> io::Result<Reply> {
        let mut header = [0u8; 12];
        let (length, file) = uninterrupted(|| {
            let received = self.stream.recv_with_fd(&mut header);
            received.map_err(|error| io::Error::from_raw_os_error(error.errno()))
        })?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (&self.stream).read_exact(&mut header[length..])?;
        let word = |at: usize| {
            let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_ne_bytes(bytes)
        };
        if word(4) != VERSION | REPLY {
            return Err(io::Error::other(format!("flags {:#x}", word(4))));
        }
        let length = usize::try_from(word(8)).map_err(io::Error::other)?;
        let mut payload = vec![0u8; length];
        (&self.stream).read_exact(&mut payload)?;
        Ok(Reply {
            request: word(0),
            payload,
            file,
        })
    }

    /// Sends a message that has a reply of its own, and waits for that.
    ///
    /// # Errors
    /// When the back-end is gone or answers something else.
    pub fn ask(&self, request: u32, payload: &[u8]) -> io::Result<Reply> {
        self.send(request, payload, &[])?;
        let reply = self.reply()?;
        if reply.request != request {
            return Err(io::Error::other(format!("a reply to {}", reply.request)));
        }
        Ok(reply)
    }

    /// Sends a message that sets something, and waits for the acknowledgement if there are any.
    ///
    /// # Errors
    /// When the back-end is gone or refuses.
    pub fn set(&self, request: u32, payload: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
        if !self.acknowledged {
            return self.send(request, payload, descriptors);
        }
        self.raw(
            &message(request, VERSION | NEED_REPLY, payload),
            descriptors,
        )?;
        let reply = self.reply()?;
        match (reply.request == request, reply.number()) {
            (true, 0) => Ok(()),
            _ => Err(io::Error::other(format!("message {request} was refused"))),
        }
    }

    /// Chooses features: of the virtio word those `wanted` that are offered, of the protocol's
    /// the same. Returns what was chosen.
    ///
    /// # Errors
    /// When the back-end is gone or refuses.
    pub fn negotiate(&mut self, wanted: u64, protocol: u64) -> io::Result<(u64, u64)> {
        self.set(message::SET_OWNER, &[], &[])?;
        let features = self.ask(message::GET_FEATURES, &[])?.number() & wanted;
        let mut chosen = 0;
        if features & PROTOCOL_FEATURES != 0 {
            let offered = self.ask(message::GET_PROTOCOL_FEATURES, &[])?.number();
            chosen = offered & protocol;
            self.set(message::SET_PROTOCOL_FEATURES, &chosen.to_ne_bytes(), &[])?;
        }
        self.set(message::SET_FEATURES, &features.to_ne_bytes(), &[])?;
        self.acknowledged = chosen & protocol::REPLY_ACK != 0;
        Ok((features, chosen))
    }

    /// Hands over memory, all at once.
    ///
    /// # Errors
    /// When the back-end is gone or refuses.
    pub fn set_memory(&self, memory: &Memory) -> io::Result<()> {
        let mut payload = vec![0u8; 8];
        payload[0] = 1;
        payload.extend(region(memory, Memory::START));
        let descriptors = [memory.file().as_raw_fd()];
        self.set(message::SET_MEM_TABLE, &payload, &descriptors)
    }

    /// Hands over memory as one more region, which the guest has at `guest_base`.
    ///
    /// # Errors
    /// When the back-end is gone or refuses.
    pub fn add_memory(&self, memory: &Memory, guest_base: u64) -> io::Result<()> {
        let payload = [vec![0u8; 8], region(memory, guest_base)].concat();
        let descriptors = [memory.file().as_raw_fd()];
        self.set(message::ADD_MEM_REG, &payload, &descriptors)
    }

    /// Takes a region back, as libblkio does: with a descriptor that nobody needs.
    ///
    /// # Errors
    /// When the back-end is gone or refuses.
    pub fn remove_memory(&self, memory: &Memory, guest_base: u64) -> io::Result<()> {
        let payload = [vec![0u8; 8], region(memory, guest_base)].concat();
        let descriptors = [memory.file().as_raw_fd()];
        self.set(message::REM_MEM_REG, &payload, &descriptors)
    }

    /// Says everything about a ring except that it is enabled, from `base` on.
    ///
    /// # Errors
    /// When the back-end is gone or refuses.
    pub fn set_ring(
        &self,
        index: u32,
        driver: &Driver,
        base: u32,
        bells: &Bells,
    ) -> io::Result<()> {
        let size = u32::from(driver.options().size);
        self.set(message::SET_VRING_NUM, &state(index, size), &[])?;
        self.set(message::SET_VRING_BASE, &state(index, base), &[])?;
        let addresses = driver.addresses();
        let mut payload = state(index, 0);
        for address in [
            addresses.descriptors.0,
            addresses.device.0,
            addresses.driver.0,
        ] {
            payload.extend((address + USER_OFFSET).to_ne_bytes());
        }
        payload.extend([0; 8]);
        self.set(message::SET_VRING_ADDR, &payload, &[])?;
        self.set_event(message::SET_VRING_ERR, index, Some(&bells.error))?;
        self.set_event(message::SET_VRING_CALL, index, Some(&bells.call))?;
        self.set_event(message::SET_VRING_KICK, index, Some(&bells.kick))
    }

    /// Hands over a kick, call or error; `None`: there is none.
    ///
    /// # Errors
    /// When the back-end is gone or refuses.
    pub fn set_event(&self, request: u32, index: u32, event: Option<&EventFd>) -> io::Result<()> {
        let index = u64::from(index);
        match event {
            Some(event) => self.set(request, &index.to_ne_bytes(), &[event.as_raw_fd()]),
            None => self.set(request, &(index | NO_DESCRIPTOR).to_ne_bytes(), &[]),
        }
    }

    /// Enables or disables a ring.
    ///
    /// # Errors
    /// When the back-end is gone or refuses.
    pub fn enable(&self, index: u32, enabled: bool) -> io::Result<()> {
        let payload = state(index, u32::from(enabled));
        self.set(message::SET_VRING_ENABLE, &payload, &[])
    }

    /// Stops a ring; where it goes on.
    ///
    /// # Errors
    /// When the back-end is gone.
    pub fn stop_ring(&self, index: u32) -> io::Result<u32> {
        let reply = self.ask(message::GET_VRING_BASE, &state(index, 0))?;
        let [_, _, _, _, a, b, c, d] = reply.payload[..] else {
            return Err(io::Error::other("the base of a ring is eight bytes"));
        };
        Ok(u32::from_ne_bytes([a, b, c, d]))
    }

    /// Reads the configuration space.
    ///
    /// # Errors
    /// When the back-end is gone; an answer that is not as long as asked for is an error too.
    pub fn configuration(&self, offset: u32, length: u32) -> io::Result<Vec<u8>> {
        let bytes = usize::try_from(length).map_err(io::Error::other)?;
        let mut payload = configuration_header(offset, length);
        payload.extend(vec![0; bytes]);
        let reply = self.ask(message::GET_CONFIG, &payload)?;
        if reply.payload.len() != 12 + bytes {
            return Err(io::Error::other("another length than asked for"));
        }
        Ok(reply.payload[12..].to_vec())
    }

    /// Writes to the configuration space.
    ///
    /// # Errors
    /// When the back-end is gone or refuses.
    pub fn set_configuration(&self, offset: u32, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let payload = [configuration_header(offset, length), bytes.to_vec()].concat();
        self.set(message::SET_CONFIG, &payload, &[])
    }

    /// Has the back-end make in-flight memory.
    ///
    /// # Errors
    /// When the back-end is gone, or sends none.
    pub fn make_inflight(&self, queues: u16, size: u16) -> io::Result<InflightMemory> {
        let mut payload = vec![0u8; 16];
        payload.extend(queues.to_ne_bytes());
        payload.extend(size.to_ne_bytes());
        payload.extend([0; 4]);
        let reply = self.ask(message::GET_INFLIGHT_FD, &payload)?;
        Ok(InflightMemory {
            file: reply.file.ok_or(io::ErrorKind::NotFound)?,
            description: reply.payload,
        })
    }

    /// Hands in-flight memory to the back-end.
    ///
    /// # Errors
    /// When the back-end is gone or refuses.
    pub fn set_inflight(&self, inflight: &InflightMemory) -> io::Result<()> {
        let descriptors = [inflight.file.as_raw_fd()];
        self.set(
            message::SET_INFLIGHT_FD,
            &inflight.description,
            &descriptors,
        )
    }

    /// Opens the back-end's own channel; our end of it.
    ///
    /// # Errors
    /// When the back-end is gone or refuses.
    pub fn open_channel(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        self.set(message::SET_BACKEND_REQ_FD, &[], &[theirs.as_raw_fd()])?;
        Ok(ours)
    }

    /// Whether the back-end says nothing for so long. What it says is lost.
    ///
    /// # Panics
    /// When the connection has ended.
    #[must_use]
    pub fn is_silent(&self, time: Duration) -> bool {
        let set = |time| self.stream.set_read_timeout(time).expect("not zero");
        set(Some(time));
        let heard = (&self.stream).read(&mut [0]);
        set(None);
        match heard {
            Ok(0) => panic!("the connection has ended"),
            Ok(_) => false,
            Err(_) => true,
        }
    }

    /// Whether the back-end has ended the connection; waits for a message or the end.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.reply().is_err()
    }
}

impl AsRawFd for FrontEnd {
    /// For waiting until the back-end says something or goes.
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

/// A message as it travels.
#[must_use]
pub fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a message is short");
    let mut bytes = Vec::with_capacity(12 + payload.len());
    for word in [request, flags, length] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(payload);
    bytes
}

/// The payload that most ring messages have.
#[must_use]
pub fn state(index: u32, number: u32) -> Vec<u8> {
    [index.to_ne_bytes(), number.to_ne_bytes()].concat()
}

fn configuration_header(offset: u32, length: u32) -> Vec<u8> {
    [
        offset.to_ne_bytes(),
        length.to_ne_bytes(),
        0u32.to_ne_bytes(),
    ]
    .concat()
}

/// Guest address, bytes, our address, offset in the file.
fn region(memory: &Memory, guest_base: u64) -> Vec<u8> {
    let bytes = units::bytes_u64(memory.segment().len());
    let words = [guest_base, bytes, guest_base + USER_OFFSET, 0];
    words.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// Calls again what a signal has interrupted, as a fuzzer's own timer does.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}
