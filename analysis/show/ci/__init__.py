"""What continuous integration shows of a run: JUnit XML, a summary in Markdown, annotations."""
