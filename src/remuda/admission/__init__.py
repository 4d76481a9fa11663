"""Who may connect to a server of ours: the rule, the kernel's word about a peer, the accepting socket."""
