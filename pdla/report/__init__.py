"""Everything that people read: terminal tables, pictures, and one self-contained HTML file."""
