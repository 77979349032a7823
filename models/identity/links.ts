// The base URLs of links in mails. The role that writes mails sets them once.

interface Urls {
  api: string
  console: string
}
let urls: Urls | undefined

export function useLinks(settings: {
  KEELSON_API_URL: string
  KEELSON_CONSOLE_URL?: string | undefined
}): void {
  urls = {
    api: settings.KEELSON_API_URL,
    console: settings.KEELSON_CONSOLE_URL ?? settings.KEELSON_API_URL,
  }
}

/**
 * The instructions for using a one-time token: a page of the console, or one API call. The token is in the fragment of
 * the link, which reaches no server and no log.
 */
export function waysToUse(token: string, page: string, operation: string): string {
  if (!urls) throw new Error('useLinks was not called')
  const body = JSON.stringify({ token, password: 'YOUR NEW PASSWORD' })
  return `${urls.console}/${page}#token=${token}

Without the console, send the token yourself:

  curl ${urls.api}${operation} \\
    -H 'content-type: application/json' \\
    -d '${body}'
`
}
