"""Where one request's time goes: pieces that sum to all of it. It knows no series and no prices."""
