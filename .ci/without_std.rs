//! Compiles only if nothing that `skein_protocol` links to uses std, which would bring a second
//! panic handler.
#![no_std]

extern crate skein_protocol;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
