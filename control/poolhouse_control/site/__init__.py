"""What people see at the address of signaling."""
