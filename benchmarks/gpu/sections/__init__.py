"""The sections: each module has `run(session)`."""
