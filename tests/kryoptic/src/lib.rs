//! The software token of kryoptic as a PKCS#11 3.2 module: one that has ML-DSA and ML-KEM, for tests. `KRYOPTIC_CONF`
//! names its configuration.

#![allow(non_snake_case, reason = "the names of the standard")]

use kryoptic_lib::fns::general;
use kryoptic_lib::pkcs11::{
    CK_FLAGS, CK_FUNCTION_LIST_PTR_PTR, CK_INTERFACE_PTR, CK_INTERFACE_PTR_PTR, CK_RV, CK_ULONG_PTR, CK_UTF8CHAR_PTR,
    CK_VERSION_PTR,
};

/// The functions of PKCS#11 2.40.
#[unsafe(no_mangle)]
pub extern "C" fn C_GetFunctionList(list: CK_FUNCTION_LIST_PTR_PTR) -> CK_RV {
    general::fn_get_function_list(list)
}

/// Every list of functions that there is.
#[unsafe(no_mangle)]
pub extern "C" fn C_GetInterfaceList(list: CK_INTERFACE_PTR, count: CK_ULONG_PTR) -> CK_RV {
    general::fn_get_interface_list(list, count)
}

/// One of them, by name and version; the newest without a version.
#[unsafe(no_mangle)]
pub extern "C" fn C_GetInterface(
    name: CK_UTF8CHAR_PTR,
    version: CK_VERSION_PTR,
    interface: CK_INTERFACE_PTR_PTR,
    flags: CK_FLAGS,
) -> CK_RV {
    general::fn_get_interface(name, version, interface, flags)
}
