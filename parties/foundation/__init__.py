"""Small modules that everything else of `parties` uses: errors, exit statuses, versions, text from others, this
process.
"""
